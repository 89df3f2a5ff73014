"""DAX, the XML of Pegasus workflows: jobs with a run time, and the files that they read and write.

E. Deelman et al., Pegasus, a workflow management system for science automation, Future Generation Computer Systems 46, 2015,
doi:10.1016/j.future.2014.10.008.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET  # as its documentation names it

import networkx as nx

from placer.errors import PlanError
from placer.research.formats.places import reading
from placer.research.formats.workflow import NS_PER_S, Task, dag_of, one_time_ns, tasks_of
from placer.research.formats.xml_text import local_name, parse_xml, xml_name

NAME = "DAX"
SUFFIX = ".dax"
HOLDS_MACHINE = False


def read(content: bytes, source: str) -> tuple[nx.MultiDiGraph, None]:
    """The graph of jobs. Raises PlanError if it is no DAX."""
    root = parse_xml(content, source)
    if local_name(root) != "adag":
        raise PlanError(f"{source} is no DAX: its root is <{local_name(root)}>, not <adag>.")
    tasks: list[Task] = []
    for number, job in enumerate((element for element in root if local_name(element) in {"job", "dax", "dag"}), 1):
        with reading(
            f"{source}, job {number}", "A job has an id and a runtime in seconds; its <uses> have a file, a link and a size."
        ):
            task = Task(job.attrib["id"], round(NS_PER_S * float(job.attrib["runtime"])))
            for uses in (element for element in job.iter() if local_name(element) == "uses"):
                file = uses.attrib.get("file") or uses.attrib["name"]
                files = task.writes if uses.attrib.get("link") == "output" else task.reads
                files[file] = round(float(uses.attrib.get("size", 0)))
        tasks.append(task)
    by_id = {task.name: task for task in tasks}
    for number, child in enumerate((element for element in root if local_name(element) == "child"), 1):
        with reading(f"{source}, child {number}", "The ref of a <child> and of its <parent>s is the id of a job."):
            parents = [element.attrib["ref"] for element in child if local_name(element) == "parent"]
            if (job_id := child.attrib["ref"]) not in by_id:
                raise ValueError(f"there is no job {job_id!r}")
            by_id[job_id].parents += parents
    with reading(source, "Each job has an id of its own."):
        return dag_of(tasks), None


def write(dag: nx.MultiDiGraph, network: nx.DiGraph) -> bytes:
    """The text of a file."""
    root = ET.Element("adag", xmlns="http://pegasus.isi.edu/schema/DAX", version="2.1", jobCount=str(len(dag)))
    tasks = tasks_of(dag)
    for task in tasks:
        runtime = repr(one_time_ns(dag, task.name) / NS_PER_S)
        job = ET.SubElement(root, "job", id=xml_name(task.name), name=xml_name(task.name), runtime=runtime)
        for link, files in (("input", task.reads), ("output", task.writes)):
            for file, size in files.items():
                ET.SubElement(job, "uses", file=xml_name(file), link=link, size=str(size))
    for task in tasks:
        if task.parents:
            child = ET.SubElement(root, "child", ref=xml_name(task.name))
            for parent in task.parents:
                ET.SubElement(child, "parent", ref=xml_name(parent))
    ET.indent(root)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"
