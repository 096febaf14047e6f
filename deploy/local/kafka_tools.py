"""Kafka's command-line tools, for the local broker or any other.

    python -m deploy.local.kafka_tools topics --bootstrap-server localhost:9092 --list

The first argument is the name of a script of a Kafka distribution, without `kafka-` and `.sh`; the
other arguments are those of the script.
"""

import os
import sys

from deploy.local.kafka import LOG_SETTINGS
from job.installation.exit_code import exit_code
from job.installation.jars import jar_folder
from job.installation.java import java_home

_PACKAGE = "org.apache.kafka.tools"
MAIN_CLASSES = {
    "acls": f"{_PACKAGE}.AclCommand",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": f"{_PACKAGE}.consumer.ConsoleConsumer",
    "console-producer": f"{_PACKAGE}.ConsoleProducer",
    "consumer-groups": f"{_PACKAGE}.consumer.group.ConsumerGroupCommand",
    "delete-records": f"{_PACKAGE}.DeleteRecordsCommand",
    "get-offsets": f"{_PACKAGE}.GetOffsetShell",
    "topics": f"{_PACKAGE}.TopicCommand",
    "transactions": f"{_PACKAGE}.TransactionsCommand",
}
USAGE = "\n".join(
    [
        "usage: python -m deploy.local.kafka_tools TOOL [OPTIONS]",
        "TOOL --help lists the options of a tool. Tools:",
        *(f"  {tool}" for tool in MAIN_CLASSES),
    ]
)


def command(tool: str, arguments: list[str]) -> list[str]:
    return [
        str(java_home() / "bin" / "java"),
        *("-Xmx256m", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={LOG_SETTINGS}"),
        *("-cp", str(jar_folder("kafka") / "*")),
        MAIN_CLASSES[tool],
        *arguments,
    ]


def main() -> int:
    tool, *arguments = sys.argv[1:] or [""]
    if tool in {"-h", "--help"}:
        print(USAGE)
        return 0
    if tool not in MAIN_CLASSES:
        problem = f"unknown tool {tool}" if tool else "a tool is required"
        print(f"{problem}\n{USAGE}", file=sys.stderr)
        return 2
    return exit_code(lambda: _become(command(tool, arguments)))


def _become(words: list[str]) -> None:
    os.execv(words[0], words)  # noqa: S606  # there is no shell to need


if __name__ == "__main__":
    sys.exit(main())
