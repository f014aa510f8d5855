package devworkload_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"github.com/google/go-cmp/cmp"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/test/kit"
)

// federatedServer serves alice and bob of td.test, federated with foreign.test.
func federatedServer(t *testing.T, cfg devworkload.Config) (*devworkload.Server, secretv3.SecretDiscoveryServiceClient) {
	t.Helper()
	cfg.Entries = []devworkload.Entry{{ID: alice}, {ID: bob}}
	server := newServer(t, cfg)
	if err := server.SetFederated(newServer(t, devworkload.Config{TrustDomain: foreign}).Bundle()); err != nil {
		t.Fatal(err)
	}
	return server, secretv3.NewSecretDiscoveryServiceClient(rawClient(t, serve(t, server)))
}

// describeSecrets says in a line each what the secrets of resp are.
func describeSecrets(t *testing.T, resp *discoveryv3.DiscoveryResponse) []string {
	t.Helper()
	var lines []string
	for _, resource := range resp.GetResources() {
		var secret tlsv3.Secret
		if err := resource.UnmarshalTo(&secret); err != nil {
			t.Fatal(err)
		}
		if cert := secret.GetTlsCertificate(); cert != nil {
			pair, err := tls.X509KeyPair(cert.GetCertificateChain().GetInlineBytes(), cert.GetPrivateKey().GetInlineBytes())
			if err != nil {
				t.Fatalf("%s: %v", secret.GetName(), err)
			}
			lines = append(lines, secret.GetName()+": certificate of "+pair.Leaf.URIs[0].String())
			continue
		}
		custom := secret.GetValidationContext().GetCustomValidatorConfig()
		if custom.GetName() != "envoy.tls.cert_validator.spiffe" {
			t.Fatalf("%s: validator %q", secret.GetName(), custom.GetName())
		}
		var config tlsv3.SPIFFECertValidatorConfig
		if err := custom.GetTypedConfig().UnmarshalTo(&config); err != nil {
			t.Fatal(err)
		}
		line := secret.GetName() + ": roots of"
		for _, td := range config.GetTrustDomains() {
			line += " " + td.GetName()
			block, _ := pem.Decode(td.GetTrustBundle().GetInlineBytes())
			if block == nil {
				t.Fatalf("%s: no PEM", td.GetName())
			}
			if root, err := x509.ParseCertificate(block.Bytes); err != nil || root.URIs[0].Host != td.GetName() {
				t.Fatalf("%s: root %v, %v", td.GetName(), root, err)
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// SPIRE's agent may be told to give the bundles of all trust domains under another name,
// that of the own bundle too.
func TestAllBundlesUnderAnotherName(t *testing.T) {
	_, client := federatedServer(t, devworkload.Config{AllBundlesName: "ROOTCA"})
	resp, err := client.FetchSecrets(kit.Context(t), &discoveryv3.DiscoveryRequest{ResourceNames: []string{"ROOTCA"}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"ROOTCA: roots of foreign.test td.test"}, describeSecrets(t, resp)); diff != "" {
		t.Errorf("FetchSecrets() (-want +got):\n%s", diff)
	}
	if _, err := client.FetchSecrets(kit.Context(t), &discoveryv3.DiscoveryRequest{ResourceNames: []string{"ALL"}}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("FetchSecrets() of its usual name = %v", err)
	}
}

func TestSecretNames(t *testing.T) {
	_, client := federatedServer(t, devworkload.Config{})
	tests := map[string]struct {
		ask  []string
		want []string // nil: not authorized
	}{
		"an svid by its id":  {[]string{bob.String()}, []string{bob.String() + ": certificate of " + bob.String()}},
		"the default svid":   {[]string{"default"}, []string{"default: certificate of " + alice.String()}},
		"the own bundle":     {[]string{"ROOTCA"}, []string{"ROOTCA: roots of td.test"}},
		"own bundle by id":   {[]string{"spiffe://td.test"}, []string{"spiffe://td.test: roots of td.test"}},
		"a federated bundle": {[]string{"spiffe://foreign.test"}, []string{"spiffe://foreign.test: roots of foreign.test"}},
		"all bundles":        {[]string{"ALL"}, []string{"ALL: roots of foreign.test td.test"}},
		"several": {[]string{"default", "ROOTCA", "spiffe://foreign.test"}, []string{
			"default: certificate of " + alice.String(), "ROOTCA: roots of td.test", "spiffe://foreign.test: roots of foreign.test",
		}},
		"no names": {nil, []string{
			"spiffe://foreign.test: roots of foreign.test", "spiffe://td.test: roots of td.test",
			alice.String() + ": certificate of " + alice.String(), bob.String() + ": certificate of " + bob.String(),
		}},
		"somebody else's id":      {[]string{"spiffe://td.test/eve"}, nil},
		"an unknown trust domain": {[]string{"spiffe://evil.test"}, nil},
		"any other word":          {[]string{"validation"}, nil},
		"one held and one not":    {[]string{"default", "spiffe://td.test/eve"}, nil},
		"the own bundle twice":    {[]string{"ROOTCA", "ALL"}, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			resp, err := client.FetchSecrets(kit.Context(t), &discoveryv3.DiscoveryRequest{ResourceNames: tc.ask})
			if tc.want == nil {
				if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "not authorized for the requested identities") {
					t.Errorf("FetchSecrets(%v) = %v, %v", tc.ask, resp, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, describeSecrets(t, resp)); diff != "" {
				t.Errorf("FetchSecrets() (-want +got)\n%s", diff)
			}
		})
	}
	t.Run("another type", func(t *testing.T) {
		_, err := client.FetchSecrets(kit.Context(t), &discoveryv3.DiscoveryRequest{TypeUrl: "type.googleapis.com/envoy.config.cluster.v3.Cluster"})
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("FetchSecrets() = %v", err)
		}
	})
	t.Run("deltas are not served", func(t *testing.T) {
		stream, err := client.DeltaSecrets(kit.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != codes.Unimplemented {
			t.Errorf("DeltaSecrets() = %v, want Unimplemented", err)
		}
	})
}

// secretStream is Envoy's end of one stream.
type secretStream struct {
	t         *testing.T
	stream    secretv3.SecretDiscoveryService_StreamSecretsClient
	responses chan *discoveryv3.DiscoveryResponse
	failed    chan error
}

func openSecretStream(t *testing.T, client secretv3.SecretDiscoveryServiceClient) *secretStream {
	t.Helper()
	stream, err := client.StreamSecrets(kit.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	s := &secretStream{t: t, stream: stream, responses: make(chan *discoveryv3.DiscoveryResponse, 10), failed: make(chan error, 1)}
	go func() {
		for {
			resp, err := stream.Recv()
			if err != nil {
				s.failed <- err
				return
			}
			s.responses <- resp
		}
	}()
	return s
}

func (s *secretStream) send(req *discoveryv3.DiscoveryRequest) {
	s.t.Helper()
	if err := s.stream.Send(req); err != nil && !errors.Is(err, io.EOF) {
		s.t.Fatal(err)
	}
}

func (s *secretStream) next() *discoveryv3.DiscoveryResponse {
	s.t.Helper()
	select {
	case resp := <-s.responses:
		return resp
	case err := <-s.failed:
		s.t.Fatalf("stream ended: %v", err)
	case <-time.After(kit.Patience):
		s.t.Fatal("no response came")
	}
	return nil
}

func (s *secretStream) end() error {
	s.t.Helper()
	select {
	case err := <-s.failed:
		return err
	case resp := <-s.responses:
		s.t.Fatalf("stream goes on with %v", describeSecrets(s.t, resp))
	case <-time.After(kit.Patience):
		s.t.Fatal("stream does not end")
	}
	return nil
}

// ack acknowledges resp, or refuses it with problem.
func ack(resp *discoveryv3.DiscoveryResponse, problem string, names ...string) *discoveryv3.DiscoveryRequest {
	req := &discoveryv3.DiscoveryRequest{
		TypeUrl: resp.GetTypeUrl(), VersionInfo: resp.GetVersionInfo(), ResponseNonce: resp.GetNonce(), ResourceNames: names,
	}
	if problem != "" {
		req.ErrorDetail = &rpcstatus.Status{Message: problem}
	}
	return req
}

func TestSecretStream(t *testing.T) {
	server, client := federatedServer(t, devworkload.Config{})
	s := openSecretStream(t, client)

	s.send(&discoveryv3.DiscoveryRequest{ResourceNames: []string{"default"}})
	first := s.next()
	if diff := cmp.Diff([]string{"default: certificate of " + alice.String()}, describeSecrets(t, first)); diff != "" {
		t.Fatalf("first response (-want +got)\n%s", diff)
	}

	// An acknowledgement is not answered: the next response is that to other names.
	s.send(ack(first, "", "default"))
	s.send(ack(first, "", "default", "ROOTCA"))
	second := s.next()
	if diff := cmp.Diff([]string{"default: certificate of " + alice.String(), "ROOTCA: roots of td.test"}, describeSecrets(t, second)); diff != "" {
		t.Fatalf("after asking for more (-want +got)\n%s", diff)
	}
	if second.GetNonce() == first.GetNonce() {
		t.Error("two responses have one nonce")
	}

	// A late acknowledgement of the first response changes nothing, and a refusal
	// is not answered with the same again: the next response is the change below.
	s.send(ack(first, "", "default"))
	s.send(ack(second, "bad secret", "default", "ROOTCA"))
	if err := server.RotateCA(); err != nil {
		t.Fatal(err)
	}
	third := s.next()
	if diff := cmp.Diff([]string{"default: certificate of " + alice.String(), "ROOTCA: roots of td.test"}, describeSecrets(t, third)); diff != "" {
		t.Fatalf("after a rotation (-want +got)\n%s", diff)
	}
	if third.GetVersionInfo() == second.GetVersionInfo() {
		t.Error("a rotation keeps the version")
	}
	if third.GetNonce() == second.GetNonce() {
		t.Error("a push keeps the nonce")
	}

	// An entry that goes takes the stream with it.
	s.send(ack(third, "", alice.String()))
	s.next()
	if err := server.SetEntries([]devworkload.Entry{{ID: bob}}); err != nil {
		t.Fatal(err)
	}
	if err := s.end(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("after removing the entry: %v, want InvalidArgument", err)
	}
}

func TestSecretStreamEnds(t *testing.T) {
	server, client := federatedServer(t, devworkload.Config{})
	t.Run("when the caller is done", func(t *testing.T) {
		s := openSecretStream(t, client)
		if err := s.stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if err := s.end(); !errors.Is(err, io.EOF) {
			t.Errorf("stream ends with %v", err)
		}
	})
	t.Run("when no identity is left", func(t *testing.T) {
		s := openSecretStream(t, client)
		s.send(&discoveryv3.DiscoveryRequest{})
		s.next()
		if err := server.SetEntries(nil); err != nil {
			t.Fatal(err)
		}
		if err := s.end(); status.Code(err) != codes.PermissionDenied {
			t.Errorf("stream ends with %v", err)
		}
	})
}

func TestSecretsNeedNoSecurityHeader(t *testing.T) {
	_, client := federatedServer(t, devworkload.Config{})
	ctx, cancel := context.WithTimeout(context.Background(), kit.Patience)
	defer cancel()
	if _, err := client.FetchSecrets(ctx, &discoveryv3.DiscoveryRequest{ResourceNames: []string{"default"}}); err != nil {
		t.Error(err)
	}
}
