package inspect

// WithBundlesOf returns o as if the bundles of from had come with it.
func WithBundlesOf(o, from Offer) Offer {
	o.x509 = from.x509
	return o
}
