"""The steps of build-tree, one file per step."""
