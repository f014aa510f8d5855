// Package ejbca takes the place of the client of EJBCA, a certificate authority, in the
// SPIRE server that tests run. That client's module cannot be had from every module
// proxy, and it is needed for one plugin only (UpstreamAuthority "ejbca"), which no test
// uses. Here it has what the plugin compiles against, and never reaches anybody.
package ejbca

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
)

var errAbsent = errors.New("this SPIRE server was built without the client of EJBCA")

// Authenticator authenticates nothing.
type Authenticator any

// MTLSAuthenticatorBuilder builds nothing.
type MTLSAuthenticatorBuilder struct{}

// NewMTLSAuthenticatorBuilder returns a builder whose Build fails.
func NewMTLSAuthenticatorBuilder() *MTLSAuthenticatorBuilder { return &MTLSAuthenticatorBuilder{} }

// WithClientCertificate changes nothing.
func (b *MTLSAuthenticatorBuilder) WithClientCertificate(*tls.Certificate) *MTLSAuthenticatorBuilder {
	return b
}

// WithCaCertificates changes nothing.
func (b *MTLSAuthenticatorBuilder) WithCaCertificates([]*x509.Certificate) *MTLSAuthenticatorBuilder {
	return b
}

// Build fails.
func (b *MTLSAuthenticatorBuilder) Build() (Authenticator, error) { return nil, errAbsent }

// Configuration is that of a client.
type Configuration struct{ Host string }

// NewConfiguration returns an empty one.
func NewConfiguration() *Configuration { return &Configuration{} }

// SetAuthenticator changes nothing.
func (c *Configuration) SetAuthenticator(Authenticator) {}

// APIClient is the client.
type APIClient struct{ V1CertificateApi *V1CertificateApi }

// NewAPIClient fails.
func NewAPIClient(*Configuration) (*APIClient, error) { return nil, errAbsent }

// V1CertificateApi is what the plugin uses of the client.
type V1CertificateApi struct{}

// EnrollPkcs10Certificate returns a request that fails.
func (*V1CertificateApi) EnrollPkcs10Certificate(context.Context) ApiEnrollPkcs10CertificateRequest {
	return ApiEnrollPkcs10CertificateRequest{}
}

// ApiEnrollPkcs10CertificateRequest is a request that fails.
type ApiEnrollPkcs10CertificateRequest struct{}

// EnrollCertificateRestRequest changes nothing.
func (r ApiEnrollPkcs10CertificateRequest) EnrollCertificateRestRequest(EnrollCertificateRestRequest) ApiEnrollPkcs10CertificateRequest {
	return r
}

// Execute fails.
func (ApiEnrollPkcs10CertificateRequest) Execute() (*CertificateRestResponse, *http.Response, error) {
	return nil, nil, errAbsent
}

// EnrollCertificateRestRequest is what would be asked for.
type EnrollCertificateRestRequest struct{}

// NewEnrollCertificateRestRequest returns an empty one.
func NewEnrollCertificateRestRequest() *EnrollCertificateRestRequest {
	return &EnrollCertificateRestRequest{}
}

// The setters change nothing.
func (*EnrollCertificateRestRequest) SetUsername(string)                 {}
func (*EnrollCertificateRestRequest) SetPassword(string)                 {}
func (*EnrollCertificateRestRequest) SetCertificateRequest(string)       {}
func (*EnrollCertificateRestRequest) SetCertificateAuthorityName(string) {}
func (*EnrollCertificateRestRequest) SetCertificateProfileName(string)   {}
func (*EnrollCertificateRestRequest) SetEndEntityProfileName(string)     {}
func (*EnrollCertificateRestRequest) SetIncludeChain(bool)               {}
func (*EnrollCertificateRestRequest) SetAccountBindingId(string)         {}

// CertificateRestResponse is what would be answered.
type CertificateRestResponse struct{ CertificateChain []string }

// GetResponseFormat returns nothing.
func (*CertificateRestResponse) GetResponseFormat() string { return "" }

// GetCertificate returns nothing.
func (*CertificateRestResponse) GetCertificate() string { return "" }

// GenericOpenAPIError is an error of EJBCA.
type GenericOpenAPIError struct{}

// Error implements error.
func (*GenericOpenAPIError) Error() string { return errAbsent.Error() }

// Body returns nothing.
func (*GenericOpenAPIError) Body() []byte { return nil }
