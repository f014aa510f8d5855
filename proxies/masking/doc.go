// Package masking tells what Secrets there are, and nothing of what is in them.
//
// [Read] turns the answer of a Kubernetes API server about Secrets into outlines: names,
// labels, keys and the sizes of values. An outline has no room for a value, so nothing has
// to be found and taken out of one. Outlines are what an agent sends to a hub that masks,
// as [MediaType], and [Outlines.Render] makes of them what a client of Kubernetes reads:
// a Secret with as many asterisks as the value has bytes, a Table, or the metadata alone.
//
//	outlines, err := masking.Read(answer, masking.List)
//	if err != nil {
//		return err // says nothing of what was read
//	}
//	body, length, err := outlines.Render(form, limit, time.Now())
package masking
