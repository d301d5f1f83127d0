# SPDX-License-Identifier: Apache-2.0
"""Other libraries' classes, over plans and loaders."""
