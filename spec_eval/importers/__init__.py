"""Other tools' files into run folders of ours, marked imported: what a source cannot tell is null."""
