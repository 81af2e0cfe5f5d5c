"""`python -m scalebook COMMAND`: the command `scalebook`."""

import sys

from scalebook.training.base.safe_path import leave_current_folder
from scalebook.training.cli.main import main

leave_current_folder()
sys.exit(main())
