//go:build linux && soak

package e2e

import "testing"

// TestSoakRotation keeps a link up for ten minutes of SVIDs of 30 s, with a
// rotation of the authority every 90 s.
func TestSoakRotation(t *testing.T) { rotate(t, 20) }
