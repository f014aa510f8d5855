//go:build linux && soak

package live

import (
	"testing"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
)

// TestSoakRotation is TestRotation for ten minutes.
func TestSoakRotation(t *testing.T) { rotate(t, env.OwnLive(t), 20) }
