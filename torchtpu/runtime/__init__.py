"""Running programs: choice of the platform, executables and their caches, transfers, random numbers, memory."""
