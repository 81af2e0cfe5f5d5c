"""Plain Python between the pages and the files: no Streamlit in here."""
