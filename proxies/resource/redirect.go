package resource

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/access"
)

const location = "Location"

// errRedirect is an answer that would send the caller elsewhere: a spoke must not
// choose where the hub's Argo CD calls next.
var errRedirect = errors.New("the spoke answered with a redirect to elsewhere")

// moved are the statuses that send the caller to a Location. Kubernetes gives them for
// an OpenAPI document whose hash is old, and for a proxy of a service without a slash
// at its end; and what is behind such a proxy has redirects of its own.
var moved = []int{
	http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect,
}

// redirect makes the Location of an answer one of the hub, which is a call to the same
// agent that is judged as any other. It returns errRedirect when that is no path as a
// call may have.
func redirect(res *http.Response, name identity.AgentName) error {
	if res.StatusCode < http.StatusMultipleChoices || res.StatusCode >= http.StatusBadRequest || res.StatusCode == http.StatusNotModified {
		return nil
	}
	to := res.Header[location]
	if len(to) != 1 || !slices.Contains(moved, res.StatusCode) {
		return errRedirect
	}
	if _, err := access.Parse(http.MethodGet, to[0], nil); err != nil {
		return errRedirect
	}
	res.Header.Set(location, prefix+name.String()+to[0])
	return nil
}

// unbase takes the path of an API server's address off the Location of its answer. Not
// every API server knows what it is behind.
func unbase(res *http.Response, base *url.URL) {
	path := strings.TrimSuffix(base.EscapedPath(), "/")
	rest, found := strings.CutPrefix(res.Header.Get(location), path+"/")
	if path != "" && found && slices.Contains(moved, res.StatusCode) {
		res.Header.Set(location, "/"+rest)
	}
}
