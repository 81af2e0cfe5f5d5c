"""`python -m scalebook COMMAND`: the command `scalebook`."""

import sys

from scalebook.training.base import safe_path
from scalebook.training.cli.main import main

safe_path.leave_current_folder()
sys.exit(main())
