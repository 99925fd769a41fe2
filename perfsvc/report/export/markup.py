"""JUnit's XML of tests, for CI."""

from xml.etree import ElementTree as ET

from perfsvc.text import cut, xml_text


def fail(test: ET.Element, kind: str, message: str) -> None:
    """Mark a test of JUnit's XML as failed, with the message; the message's first line becomes the summary."""
    failure = ET.SubElement(test, "failure", type=kind, message=message.partition("\n")[0])
    failure.text = message


def junit_xml(root: ET.Element) -> str:
    """Return suites of tests as JUnit's XML, each suite with the numbers of its tests, failures and skipped tests."""
    for suite in root:
        suite.attrib |= {
            "tests": str(len(suite)),
            "failures": str(len(suite.findall("testcase/failure"))),
            "skipped": str(len(suite.findall("testcase/skipped"))),
        }
    for element in root.iter():
        element.attrib |= {name: xml_text(cut(value)) for name, value in element.attrib.items()}
        element.text = xml_text(cut(element.text)) if element.text else element.text
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
