# The workbook for learners, and for graders with bubblewrap:
#
#     docker build --tag remat-workbook .
#     docker run --publish 8888:8888 remat-workbook                    JupyterLab; its address is in what it prints
#     docker run --rm --network none --memory 6g --memory-swap 6g --pids-limit 4096 \
#         --security-opt seccomp=unconfined --security-opt apparmor=unconfined \
#         --security-opt systempaths=unconfined --volume "$PWD/class:/class" remat-workbook \
#         .venv/bin/python -m grader batch /class/submissions --out /class/grades --without-control-groups
#
# To grade, the container must let bubblewrap create namespaces, which the security options allow. docs/isolation.md
# explains each option and what limits an answer's memory then. `.venv/bin/python -m grader doctor`, in place of `batch`,
# says whether the container allows it.
FROM python:3.13.1-slim-bookworm

RUN apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home learner

WORKDIR /home/learner/remat-workbook
COPY --chown=learner:learner . .
RUN chown learner:learner .
USER learner

# As README says, but for the last step: JupyterLab starts when the container does.
RUN python3 -c "import start; start.check_machine(); start.set_up(start.LEARNERS)"

EXPOSE 8888
CMD ["python3", "start.py", "--", "--ip=0.0.0.0", "--port=8888", "--no-browser"]
