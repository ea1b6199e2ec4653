"""As many open connections as the system lets a process have: the usual soft limit of 1,024 files is a hidden cap."""

import errno
import sys

# What connecting fails with when it is this side that has run out.
OWN_LIMITS = frozenset({errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM})

if sys.platform != "win32":
    import resource

    def raise_file_limit() -> int:
        """The limit from now on."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            except (OSError, ValueError):  # some systems refuse "unlimited"
                return soft
        return hard

else:

    def raise_file_limit() -> int:
        """The limit from now on."""
        return 2**31
