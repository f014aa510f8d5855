//go:build linux

package live

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
)

// redisDoor is Envoy before the Redis proxy, behind which there is a tree.
type redisDoor struct {
	t    *testing.T
	w    *env.RedisEnv
	tree string
}

// speaksTLS tries each mode of TLS, with clients that fit it and that do not.
func (d redisDoor) speaksTLS() {
	d.t.Helper()
	bundle := d.bundle()
	spire, trusted := d.authorities(bundle)
	longLived, cert, key, err := d.w.H.ServingCertificate("redis-tls")
	if err != nil {
		d.t.Fatal(err)
	}
	other := d.pool(longLived)
	// As argocd-server with --redis-use-tls and --redis-ca-certificate.
	byName := func(pool *x509.CertPool, name string) *tls.Config {
		return &tls.Config{RootCAs: pool, ServerName: name, MinVersion: tls.VersionTLS12}
	}
	byID := func(id string) *tls.Config {
		return tlsconfig.TLSClientConfig(bundle, tlsconfig.AuthorizeID(spiffeid.RequireFromString(id)))
	}
	old := func(pool *x509.CertPool) *tls.Config {
		c := byName(pool, "localhost")
		c.MaxVersion = tls.VersionTLS12
		return c
	}

	d.serves("none", nil)
	d.refuses("none, with TLS", byName(trusted, "localhost"), "first record does not look like a TLS handshake")
	d.cli("PONG", "PING")
	d.cli("SSL_connect failed", "--tls", "--cacert", spire, "PING")

	d.restart("svid", "", "")
	d.serves("svid", byName(trusted, "localhost"))
	d.serves("svid, by SPIFFE ID", byID(env.PrincipalID))
	d.refuses("svid, by the SPIFFE ID of another", byID(env.SPIFFEID(env.Managed)), fmt.Sprintf("unexpected ID %q", env.PrincipalID))
	d.refuses("svid, by another name", byName(trusted, "argocd-redis"), "valid for localhost, not argocd-redis")
	d.refuses("svid, with another authority", byName(other, "localhost"), "certificate signed by unknown authority")
	d.refuses("svid, with TLS 1.2", old(trusted), "protocol version not supported")
	d.refuses("svid, without TLS", nil, "EOF", "connection reset", "broken pipe")
	d.cli("PONG", "--tls", "--cacert", spire, "PING")
	d.cli("certificate verify failed", "--tls", "--cacert", longLived, "PING")

	d.restart("files", cert, key)
	d.serves("files", byName(other, "localhost"))
	d.serves("files, with TLS 1.2", old(other))
	d.refuses("files, with the authority of the SVID", byName(trusted, "localhost"), "certificate signed by unknown authority")
	d.refuses("files, by SPIFFE ID", byID(env.PrincipalID), "certificate contains no URI SAN")
	d.refuses("files, without TLS", nil, "EOF", "connection reset", "broken pipe")
}

// serves waits until a client gets the tree, in RESP2 and RESP3.
func (d redisDoor) serves(mode string, config *tls.Config) {
	d.t.Helper()
	for _, protocol := range []int{2, 3} {
		c := env.RedisClientTLS(d.t, d.w.Door.RedisAddress, protocol, config)
		env.Eventually(d.t, mode+" to serve", func() error {
			ctx, cancel := context.WithTimeout(d.t.Context(), time.Minute)
			defer cancel()
			got, err := c.Get(ctx, env.RedisTree).Result()
			if err == nil && got != d.tree {
				err = fmt.Errorf("the tree is %q", got)
			}
			return err
		})
	}
}

// refuses checks that a client gets no answer, and says one of these texts.
func (d redisDoor) refuses(mode string, config *tls.Config, says ...string) {
	d.t.Helper()
	err := env.RedisClientTLS(d.t, d.w.Door.RedisAddress, 2, config).Ping(d.t.Context()).Err()
	if err == nil || !slices.ContainsFunc(says, func(s string) bool { return strings.Contains(err.Error(), s) }) {
		d.t.Errorf("%s: %v, want one of %q", mode, err, says)
	}
}

// cli checks what redis-cli says.
func (d redisDoor) cli(want string, args ...string) {
	d.t.Helper()
	path, err := d.w.H.Tools().Path("redis-cli")
	if err != nil {
		d.t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(d.w.Door.RedisAddress)
	if err != nil {
		d.t.Fatal(err)
	}
	out, err := exec.CommandContext(d.t.Context(), path, append([]string{"-h", host, "-p", port}, args...)...).CombinedOutput()
	if !strings.Contains(string(out), want) {
		d.t.Errorf("redis-cli %q: %s, %v, want %q", args, out, err, want)
	}
}

// restart restarts the principal with another mode. Envoy runs on.
func (d redisDoor) restart(mode, cert, key string) {
	d.t.Helper()
	principal := d.w.Door.Principal
	content, err := os.ReadFile(principal.ConfigFile)
	if err != nil {
		d.t.Fatal(err)
	}
	var config map[string]any
	if err := yaml.Unmarshal(content, &config); err != nil {
		d.t.Fatal(err)
	}
	envoy := config["envoy"].(map[string]any)
	envoy["redis_tls"], envoy["redis_certificate"], envoy["redis_key"] = mode, cert, key
	if content, err = yaml.Marshal(config); err == nil {
		err = os.WriteFile(principal.ConfigFile, content, 0o600)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	if err := principal.Restart(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
}

// bundle is that of the principal's trust domain.
func (d redisDoor) bundle() *x509bundle.Bundle {
	d.t.Helper()
	all, err := workloadapi.FetchX509Bundles(d.t.Context(), workloadapi.WithAddr(d.w.Identity.Socket))
	if err != nil {
		d.t.Fatal(err)
	}
	bundle, err := all.GetX509BundleForTrustDomain(spiffeid.RequireTrustDomainFromString(env.TrustDomain))
	if err != nil {
		d.t.Fatal(err)
	}
	return bundle
}

// authorities writes a file of a bundle, and returns what is in it.
func (d redisDoor) authorities(bundle *x509bundle.Bundle) (file string, pool *x509.CertPool) {
	d.t.Helper()
	var b bytes.Buffer
	var problems []error
	for _, a := range bundle.X509Authorities() {
		problems = append(problems, pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: a.Raw}))
	}
	file = filepath.Join(d.t.TempDir(), "spire.pem")
	if err := errors.Join(append(problems, os.WriteFile(file, b.Bytes(), 0o600))...); err != nil {
		d.t.Fatal(err)
	}
	return file, d.pool(file)
}

func (d redisDoor) pool(file string) *x509.CertPool {
	d.t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		d.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		d.t.Fatalf("%s has no certificate", file)
	}
	return pool
}
