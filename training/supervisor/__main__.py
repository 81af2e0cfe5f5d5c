"""`python -m scalebook.training.supervisor FOLDER`."""

import sys

from scalebook.training.supervisor.supervisor_process import main

sys.exit(main(sys.argv[1:]))
