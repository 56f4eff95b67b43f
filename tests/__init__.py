"""The tests: facts that must hold, in folders that follow the rooms; `ground` is what they stand on."""
