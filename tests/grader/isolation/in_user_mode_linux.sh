#!/usr/bin/env bash
# Runs the tests of control groups in a Linux of its own, where version 2 has all controllers: for machines where it has
# not, and without changing anything there. On Debian: apt install bubblewrap user-mode-linux
#
#     tests/grader/isolation/in_user_mode_linux.sh [pytest's arguments]
#
# That Linux is a process. Its files are this machine's, which bubblewrap shows it read-only: what it boots could clean up
# here otherwise. It has memory of its own to write to, in /mnt and /tmp.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)"
python="$(command -v python)"
box="$(mktemp -d)"
trap 'rm -rf "$box"' EXIT

cat > "$box/init" << END
#!/usr/bin/env bash
export PATH="$PATH" PYTHONPATH="${PYTHONPATH:-}" HOME=/mnt TMPDIR=/mnt PYTHONDONTWRITEBYTECODE=1
mount -t proc none /proc
mount -t sysfs none /sys
mount -t cgroup2 none /sys/fs/cgroup
for place in /mnt /var/tmp; do mount -t tmpfs none \$place; done
cd "$root"
"$python" -m pytest -q -n 0 -p no:cacheprovider ${*:-tests/grader/isolation/test_control_groups.py} < /dev/null
echo "pytest ended with \$?"
echo o > /proc/sysrq-trigger
sleep 10
END
chmod +x "$box/init"

said="$(bwrap --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp --ro-bind "$box" /tmp/init-of-its-own --setenv HOME /tmp \
    linux.uml mem=6G quiet root=/dev/root rootfstype=hostfs rootflags=/ ro init=/tmp/init-of-its-own/init \
    con=null con0=null,fd:1 < /dev/null 2>&1 | tee /dev/stderr)"
[[ "$said" == *"pytest ended with 0"* ]]
