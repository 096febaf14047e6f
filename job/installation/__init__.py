"""The parts that pip does not install: Java, the pinned jars and the compiled classes of the job.

Standard library only: images and `make setup` use it where nothing is installed yet.
"""
