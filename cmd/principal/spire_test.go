package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/cmd/internal/principalconfig"
	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/mesh/spire/spiretest"
	"github.com/argomesh/argomesh/test/kit"
)

// write writes the bundle of a trust domain with a new authority, under a number.
func writeBundle(t *testing.T, folder, td string, number uint64) {
	t.Helper()
	ca, err := devworkload.New(devworkload.Config{TrustDomain: spiffeid.RequireTrustDomainFromString(td)})
	if err != nil {
		t.Fatal(err)
	}
	bundle := ca.Bundle()
	bundle.SetSequenceNumber(number)
	text, err := spire.MarshalBundle(bundle)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, td+".json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestBundlesOfAFolder(t *testing.T) {
	folder := t.TempDir()
	writeBundle(t, folder, "partner.test", 1)
	for name, text := range map[string]string{
		"notes.txt": "not for us", ".hidden.json": "not for us", "broken.test.json": "{", "Not A Domain.json": "{}",
		"large.test.json": `{"keys":[]}` + strings.Repeat(" ", spire.MaxBundleBytes),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(folder, "folder.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	bundles, err := readBundles(folder)
	if len(bundles) != 1 || bundles[0].TrustDomain().Name() != "partner.test" {
		t.Errorf("readBundles() = %v", bundles)
	}
	for _, name := range []string{"broken.test.json", "Not A Domain.json", "large.test.json", "folder.json"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("readBundles() does not complain of %s: %v", name, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), "not for us") {
		t.Error(err)
	}
	if _, err := readBundles(filepath.Join(folder, "gone")); err == nil || !strings.Contains(err.Error(), "spire.bundles") {
		t.Errorf("readBundles() of a folder that is not there: %v", err)
	}
}

func TestSettingsOfSPIREThatAreWrong(t *testing.T) {
	for name, change := range map[string]func(*principalconfig.SPIRE){
		"server, and no bundles": func(s *principalconfig.SPIRE) { s.Server = "unix:///run/s" },
		"bundles, and no server": func(s *principalconfig.SPIRE) { s.Bundles = "/etc/bundles" },
		"no address":             func(s *principalconfig.SPIRE) { s.Server, s.Bundles = "nowhere", "/etc/bundles" },
		"too often":              func(s *principalconfig.SPIRE) { s.Every = time.Millisecond },
	} {
		s := principalconfig.DefaultSPIRE()
		change(&s)
		if s.Validate() == nil {
			t.Errorf("%s: Validate() = nil", name)
		}
	}
	if err := principalconfig.DefaultSPIRE().Validate(); err != nil {
		t.Error(err)
	}
	if p, err := newBundlePusher(principalconfig.DefaultSPIRE(), nil, prometheus.NewRegistry(), zerolog.Nop()); p != nil || err != nil {
		t.Errorf("newBundlePusher() = %v, %v although there is nothing to push", p, err)
	}
}

// What is in the folder gets to the server, now and when it changes.
func TestBundlesArePushed(t *testing.T) {
	folder := t.TempDir()
	server := spiretest.New(spiffeid.RequireTrustDomainFromString("hub.test"))
	socket := filepath.Join(t.TempDir(), "s")
	l, err := devworkload.Listen(t.Context(), socket, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	cfg := principalconfig.SPIRE{Server: "unix://" + socket, Bundles: folder, Every: 5 * time.Millisecond}
	pusher, err := newBundlePusher(cfg, nil, prometheus.NewRegistry(), zerolog.New(zerolog.NewTestWriter(t)))
	if err != nil {
		t.Fatal(err)
	}
	kit.Background(t, func(ctx context.Context) error { return server.Run(ctx, l) })
	kit.Background(t, pusher.Run)
	for number := uint64(1); number <= 3; number++ {
		writeBundle(t, folder, "partner.test", number)
		kit.EventuallyNil(t, fmt.Sprintf("bundle %d to get to the server", number), func() error {
			if got := server.FederatedBundles()["partner.test"].GetSequenceNumber(); got != number {
				return fmt.Errorf("it has %d: %w", got, pusher.Degraded())
			}
			return nil
		})
	}
}
