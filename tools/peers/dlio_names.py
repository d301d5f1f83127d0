# SPDX-License-Identifier: Apache-2.0
"""What the plug-in for DLIO and its runner share."""
FOLDER = "rankstore"  # the dataset, in DLIO's data folder
COLUMN = "x"
