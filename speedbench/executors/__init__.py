"""Where the units of a run are measured: one file each, none knows another, the folder is the registry."""
