# SPDX-License-Identifier: Apache-2.0
"""What the plug-in for DLIO and its runner share."""
FOLDER = "rankstore"  # the dataset, in DLIO's data folder
COLUMN = "x"
# Of the environment: where the dataset lies, if not in that folder, and the folder that keeps what came from there.
HOME, LOCAL = "DLIO_RANKSTORE_HOME", "DLIO_RANKSTORE_LOCAL"
