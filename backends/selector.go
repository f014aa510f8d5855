package backends

// Selector names some objects of a kind: those with certain labels, or the one of a
// name, which a Role can grant alone (resourceNames). Exactly one field is set.
type Selector struct {
	// Labels is a label selector, such as "tier in (front, back)".
	Labels string
	// Name is the name of one object.
	Name string
}
