//go:build linux && soak

package bounds

import (
	"testing"
	"time"
)

var longSiege = siege{calm: 2 * time.Minute, attack: 10 * time.Minute, judge: true}

// TestSoakHostileAgent is TestHostileAgentAtFullSpeed for ten minutes, and nothing runs
// beside it.
func TestSoakHostileAgent(t *testing.T) { hostileAgents(t, longSiege) }

// TestSoakHostilePrincipal is the same of TestHostilePrincipalAtFullSpeed.
func TestSoakHostilePrincipal(t *testing.T) { hostilePrincipalAt(t, longSiege) }
