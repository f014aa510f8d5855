package resource

import (
	"net/url"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/resource/secretread"
)

// passing says what is passed on.
type passing struct {
	name    identity.AgentName
	request access.Request
	target  *url.URL
	uid     string
	tracked bool
	masked  *secretread.Call // nil for an answer that passes as it is
	// kubernetes is the version that the agent reported.
	kubernetes string
}
