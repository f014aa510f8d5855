package resource

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/argomesh/argomesh/proxies/resource/mediatype"

	"k8s.io/apimachinery/pkg/util/version"
	kubernetes "k8s.io/apimachinery/pkg/version"

	"github.com/argomesh/argomesh/identity"
)

// versionPath is where an API server has its version.
const versionPath = "/version"

// writeVersion answers with the version that the agent reported, for an API server that
// does not answer itself; false when that is none of Kubernetes.
func writeVersion(w http.ResponseWriter, name identity.AgentName, reported string, why notAnswered) bool {
	v, err := version.ParseSemantic(reported)
	if err != nil {
		return false
	}
	body, err := json.Marshal(kubernetes.Info{
		Major: strconv.FormatUint(uint64(v.Major()), 10), Minor: strconv.FormatUint(uint64(v.Minor()), 10),
		GitVersion: "v" + v.String(),
	})
	if err != nil {
		return false // an Info is always JSON
	}
	h := w.Header()
	h.Set("Warning", fmt.Sprintf(`299 - "agent %s %s: this is the version it reported last"`, name, why.warning()))
	h.Set("Content-Type", mediatype.Plain)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(body) // the caller is gone when this fails
	return true
}
