// Package api has what the API server stores.
package api

// Thing is stored.
type Thing struct{ Name string }
