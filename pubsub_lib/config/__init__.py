"""The configuration: frozen structs declare each option once; options of an INI file are made from them."""
