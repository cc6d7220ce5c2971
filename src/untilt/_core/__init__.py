"""What every other package uses: files, JSON, threads, statistics, options; no clicks."""
