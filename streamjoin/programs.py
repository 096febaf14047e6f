"""The programs of the package: `streamjoin` and `streamjoin-service`.

Each imports only its own part: the image of the service lacks packages that the job needs.
"""


def job() -> None:
    from job.__main__ import main

    main()


def service() -> None:
    from service.__main__ import main

    main()
