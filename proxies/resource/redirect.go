package resource

import (
	"errors"
	"net/http"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/resource/exchange"
)

// errRedirect is an answer that would send the caller elsewhere: a spoke must not
// choose where the hub's Argo CD calls next.
var errRedirect = errors.New("the spoke answered with a redirect to elsewhere")

// redirect makes the Location of an answer one of the hub, which is a call to the same
// agent that is checked as any other. It returns errRedirect when that is no path as a
// call may have.
func redirect(res *http.Response, name identity.AgentName) error {
	if res.StatusCode < http.StatusMultipleChoices || res.StatusCode >= http.StatusBadRequest ||
		res.StatusCode == http.StatusNotModified {
		return nil
	}
	to := res.Header["Location"]
	if len(to) != 1 || !exchange.Moves(res.StatusCode) {
		return errRedirect
	}
	if _, err := access.Parse(http.MethodGet, to[0], nil); err != nil {
		return errRedirect
	}
	res.Header.Set("Location", prefix+name.String()+to[0])
	return nil
}
