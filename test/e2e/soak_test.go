//go:build linux && soak

package e2e

import "testing"

// TestSoakRotation is TestRotation for ten minutes.
func TestSoakRotation(t *testing.T) { rotate(t, theLiveWorldAlone(t), 20) }
