"""Reports in the manner of published model cards: one document, whatever number of runs it joins."""
