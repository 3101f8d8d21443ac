"""Publishing to a branch: changes are applied to its head, committed by one journal entry, and checked out.

`apply` decides which changes of plain files conflict with the head. `apply_dataset` asks the formats which changes of
datasets do. `branch_update` and `commit_to_branch` notice that another publisher was faster, and prepare again.
"""
