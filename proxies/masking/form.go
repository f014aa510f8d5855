package masking

import (
	"mime"
	"strings"
)

// Form is what a caller wants to read.
type Form int

// The forms.
const (
	// NoForm is none that is known here.
	NoForm Form = iota
	// Plain is a Secret or a SecretList.
	Plain
	// Outlined is MediaType.
	Outlined
	// Metadata is a PartialObjectMetadata, or a list of them.
	Metadata
	// Table is what kubectl prints, with the metadata of each row.
	Table
	// BareTable is a Table without objects, and FullTable one with Secrets.
	BareTable
	FullTable
)

// metaGroup is the group of Tables and metadata.
const metaGroup = "meta.k8s.io"

// FormOf returns what the lines of an Accept ask for: the first that is known, as an API
// server has it, whatever is said of how much each is liked. include is option
// includeObject of a Table.
func FormOf(accept []string, include string) Form {
	asked := false
	for clause := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		if strings.TrimSpace(clause) == "" {
			continue
		}
		asked = true
		kind, params, err := mime.ParseMediaType(clause)
		if err != nil {
			continue
		}
		if form := formOf(kind, params, include); form != NoForm {
			return form
		}
	}
	if !asked {
		return Plain
	}
	return NoForm
}

func formOf(kind string, params map[string]string, include string) Form {
	switch {
	case kind == MediaType:
		return Outlined
	case kind != "application/json" && kind != "application/*" && kind != "*/*":
		return NoForm
	case params["as"] == "":
		return Plain
	case params["g"] != metaGroup || params["v"] != "v1":
		return NoForm
	}
	switch params["as"] {
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		return Metadata
	case "Table":
		switch include {
		case "None":
			return BareTable
		case "Object":
			return FullTable
		}
		return Table
	}
	return NoForm
}

// ContentType is that of an answer in the form.
func (f Form) ContentType() string {
	switch f {
	case Outlined:
		return MediaType
	case Metadata:
		return "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	case Table, BareTable, FullTable:
		return "application/json;as=Table;g=meta.k8s.io;v=v1"
	case NoForm, Plain:
	}
	return "application/json"
}
