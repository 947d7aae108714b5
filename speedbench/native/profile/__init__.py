"""Times without a task: passes of forced acceptance, and kernels by themselves."""
