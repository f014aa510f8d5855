package devworkload

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
)

var errNotAuthorized = status.Error(codes.InvalidArgument, "workload is not authorized for the requested identities")

// secretDiscovery answers Envoy's secret discovery service, as SPIRE's agent
// does. Incremental discovery is answered with Unimplemented, as there.
type secretDiscovery struct {
	secretv3.UnimplementedSecretDiscoveryServiceServer
	server *Server
}

// FetchSecrets returns the secrets asked for as they are now.
func (d *secretDiscovery) FetchSecrets(_ context.Context,
	req *discoveryv3.DiscoveryRequest) (*discoveryv3.DiscoveryResponse, error) {
	snap, _ := d.server.current()
	return discover(snap, req)
}

// StreamSecrets answers each request for secrets, and answers it again whenever what it is
// about has changed.
func (d *secretDiscovery) StreamSecrets(stream secretv3.SecretDiscoveryService_StreamSecretsServer) error {
	ctx := stream.Context()
	requests, received := receive(stream)
	var (
		asked *discoveryv3.DiscoveryRequest // newest names, nil before the first
		sent  *discoveryv3.DiscoveryResponse
		nonce uint64
	)
	for {
		snap, changed := d.server.current()
		if asked != nil && (sent == nil || sent.GetVersionInfo() != version(snap)) {
			resp, err := discover(snap, asked)
			if err != nil {
				return err
			}
			nonce++
			resp.Nonce = strconv.FormatUint(nonce, 10)
			if err := stream.Send(resp); err != nil {
				return err
			}
			sent = resp
		}
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case err := <-received:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case <-changed:
		case req := <-requests:
			if asked != nil && req.GetResponseNonce() != "" && req.GetResponseNonce() != sent.GetNonce() {
				continue // answers an older response, a newer request follows
			}
			if detail := req.GetErrorDetail(); detail != nil {
				d.server.log.Warn().Str("error", detail.GetMessage()).Strs("secrets", req.GetResourceNames()).
					Msg("Envoy refused secrets")
			}
			if asked == nil || req.GetResponseNonce() == "" || !slices.Equal(asked.GetResourceNames(), req.GetResourceNames()) {
				sent = nil // more than an acknowledgement: it wants an answer
			}
			asked = req
		}
	}
}

// receive reads the requests of a stream until it ends, and then says why.
func receive(stream secretv3.SecretDiscoveryService_StreamSecretsServer) (<-chan *discoveryv3.DiscoveryRequest,
	<-chan error) {
	requests := make(chan *discoveryv3.DiscoveryRequest)
	ended := make(chan error, 1)
	go func() {
		for {
			req, err := stream.Recv()
			if err != nil {
				ended <- err
				return
			}
			select {
			case requests <- req:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	return requests, ended
}

// discover returns the secrets of snap that req names.
func discover(snap *snapshot, req *discoveryv3.DiscoveryRequest) (*discoveryv3.DiscoveryResponse, error) {
	if t := req.GetTypeUrl(); t != "" && t != secretType {
		return nil, status.Errorf(codes.InvalidArgument, "type %q is not served here", t)
	}
	if len(snap.svids) == 0 {
		return nil, errNoIdentity
	}
	secrets, err := snap.secrets(req.GetResourceNames())
	if err != nil {
		return nil, err
	}
	resp := &discoveryv3.DiscoveryResponse{TypeUrl: secretType, VersionInfo: version(snap)}
	for _, secret := range secrets {
		packed, err := anypb.New(secret)
		if err != nil {
			return nil, status.Errorf(codes.Internal, "encode secret: %v", err)
		}
		resp.Resources = append(resp.Resources, packed)
	}
	return resp, nil
}

// secrets returns those with the given names, or, for no names, every bundle and
// every SVID under its own ID.
func (snap *snapshot) secrets(names []string) ([]*tlsv3.Secret, error) {
	if len(names) == 0 {
		for _, b := range snap.bundles() {
			names = append(names, b.TrustDomain().IDString())
		}
		for _, svid := range snap.svids {
			names = append(names, svid.ID.String())
		}
	}
	ownBundles := 0
	secrets := make([]*tlsv3.Secret, 0, len(names))
	for _, name := range names {
		if name == secretOwnBundle || name == snap.allBundles || name == snap.own.TrustDomain().IDString() {
			// SPIRE's agent gives the own bundle under one name per request;
			// what relies on more would fail there.
			if ownBundles++; ownBundles > 1 {
				return nil, errNotAuthorized
			}
		}
		secret, err := snap.secret(name)
		if err != nil {
			return nil, err
		}
		secrets = append(secrets, secret)
	}
	return secrets, nil
}

func (snap *snapshot) secret(name string) (*tlsv3.Secret, error) {
	switch name {
	case secretDefaultSVID:
		return certificateSecret(name, snap.svids[0])
	case snap.allBundles: // before the own bundle, whose name it may have
		return validationSecret(name, snap.bundles()...)
	case secretOwnBundle:
		return validationSecret(name, snap.own)
	}
	for _, svid := range snap.svids {
		if svid.ID.String() == name {
			return certificateSecret(name, svid)
		}
	}
	for _, b := range snap.bundles() {
		if b.TrustDomain().IDString() == name {
			return validationSecret(name, b)
		}
	}
	return nil, errNotAuthorized
}

func certificateSecret(name string, svid *x509svid.SVID) (*tlsv3.Secret, error) {
	chain, key, err := svid.Marshal()
	if err != nil {
		return nil, status.Errorf(codes.Internal, "encode svid: %v", err)
	}
	return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		CertificateChain: inline(chain),
		PrivateKey:       inline(key),
	}}}, nil
}

func validationSecret(name string, bundles ...*spiffebundle.Bundle) (*tlsv3.Secret, error) {
	config := &tlsv3.SPIFFECertValidatorConfig{}
	for _, b := range bundles {
		config.TrustDomains = append(config.TrustDomains, &tlsv3.SPIFFECertValidatorConfig_TrustDomain{
			Name:        b.TrustDomain().Name(),
			TrustBundle: inline(certificatesPEM(b.X509Authorities())),
		})
	}
	packed, err := anypb.New(config)
	if err != nil {
		return nil, fmt.Errorf("encode validation context: %w", err)
	}
	return &tlsv3.Secret{Name: name,
		Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
			CustomValidatorConfig: &corev3.TypedExtensionConfig{Name: spiffeValidator, TypedConfig: packed},
		}}}, nil
}

func inline(data []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: data}}
}

func certificatesPEM(certs []*x509.Certificate) []byte {
	var text []byte
	for _, c := range certs {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: c.Raw})...)
	}
	return text
}
