"""`python -m scalebook COMMAND`: the command `scalebook`."""

import sys

from scalebook.training.__main__ import main
from scalebook.training.safe_path import leave_current_folder

leave_current_folder()
sys.exit(main())
