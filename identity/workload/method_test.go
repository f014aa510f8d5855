package workload_test

import (
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/identity/workload"
)

func TestReadRoots(t *testing.T) {
	ca, err := devworkload.New(devworkload.Config{TrustDomain: spiffeid.RequireTrustDomainFromString("hub.test")})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if _, err := workload.ReadRoots(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("ReadRoots() of no file = %v", err)
	}
	if err := os.WriteFile(file, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := workload.ReadRoots(file); err == nil || !strings.Contains(err.Error(), "no certificate") {
		t.Errorf("ReadRoots() of something else = %v", err)
	}
	root := ca.Bundle().X509Authorities()[0]
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	if roots, err := workload.ReadRoots(file); err != nil || len(roots.Subjects()) != 1 { //nolint:staticcheck // not the system's pool
		t.Errorf("ReadRoots() = %v", err)
	}
}
