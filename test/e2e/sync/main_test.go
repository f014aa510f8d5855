//go:build linux

package sync

import (
	"testing"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
)

func TestMain(m *testing.M) { env.Main(m) }
