"""`python -m scalebook.training.supervisor FOLDER`."""

import sys

from scalebook.training.supervisor.supervise import main

sys.exit(main(sys.argv[1:]))
