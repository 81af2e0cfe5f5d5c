# The app with the example notebooks:  docker build -t scalebook . && docker run --rm -it --network host scalebook
# With notebooks of your own:          docker run --rm -it --network host -v "$PWD":/notebooks scalebook
# The address that it prints has a token; the app listens on 127.0.0.1, hence the host's network.
FROM python:3.12-slim
RUN apt-get update && apt-get install -y --no-install-recommends git make && rm -rf /var/lib/apt/lists/*
WORKDIR /scalebook
COPY . .
# The index has torch for CPUs; for GPUs leave it out.
RUN pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu -c constraints.txt '.[examples]' \
    && scalebook notebook examples /notebooks
VOLUME /notebooks
CMD ["scalebook", "ui", "/notebooks"]
