# SPDX-License-Identifier: Apache-2.0
"""The helper of a home that is an object store: lines of src/home/helper_wire.h on one side, obstore or fsspec on the other."""
