"""One `findings.Report`, told four ways: terminal, Markdown, JSON document, web page. Pure but for package files."""
