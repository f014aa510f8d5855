package spoke

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/resource/mediatype"
)

// maxGroups is the longest answer about groups that is read, in bytes. With every
// resource of a hundred definitions it has about 300 KiB.
const maxGroups = 16 << 20

// maxReadGroups is how many of them are read at a time; others wait.
const maxReadGroups = 4

// errGroups is an answer about groups that is none.
var errGroups = errors.New("the answer about groups cannot be read")

// askForGroups has the API server answer about its groups in a form that
// keepOwnGroups reads: JSON as it is, and all resources in one answer where the caller
// takes the form of today for that.
func askForGroups(header http.Header) {
	accept := mediatype.Plain
	for clause := range strings.SplitSeq(strings.Join(header["Accept"], ","), ",") {
		if mediatype.Form(clause) == mediatype.Aggregated+"v=v2" {
			accept = strings.TrimSpace(clause) + "," + mediatype.Plain
		}
	}
	header.Set("Accept", accept)
	for _, name := range []string{"Accept-Encoding", "If-None-Match", "If-Modified-Since", "Range"} {
		header.Del(name)
	}
}

// keepOwnGroups takes out of an answer about the groups all but Kubernetes' own. One that
// tells of none, as an error, stays as it is.
func keepOwnGroups(res *http.Response) error {
	if res.StatusCode != http.StatusOK {
		return nil
	}
	for _, name := range []string{"Etag", "Last-Modified", "Content-Length"} { // of the whole
		res.Header.Del(name)
	}
	res.ContentLength = -1
	if res.Request.Method == http.MethodHead {
		return nil
	}
	defer func() { _ = res.Body.Close() }() // all of it was read, or it is of no use
	text, err := io.ReadAll(io.LimitReader(res.Body, maxGroups+1))
	if err != nil {
		return err
	}
	if len(text) > maxGroups {
		return fmt.Errorf("%w: it has more than %d bytes", errGroups, maxGroups)
	}
	own, err := ownGroups(text)
	if err != nil {
		return fmt.Errorf("%w: %w", errGroups, err)
	}
	res.Body = io.NopCloser(bytes.NewReader(own))
	res.ContentLength = int64(len(own))
	res.Header.Set("Content-Length", strconv.Itoa(len(own)))
	return nil
}

// ownGroups returns a list of groups, in either form, with Kubernetes' own alone.
func ownGroups(text []byte) ([]byte, error) {
	var kind metav1.TypeMeta
	if err := json.Unmarshal(text, &kind); err != nil {
		return nil, err
	}
	switch kind.Kind {
	case "APIGroupList":
		var list metav1.APIGroupList
		if err := json.Unmarshal(text, &list); err != nil {
			return nil, err
		}
		list.Groups = slices.DeleteFunc(list.Groups, func(g metav1.APIGroup) bool { return !access.IsOwnGroup(g.Name) })
		return json.Marshal(list)
	case "APIGroupDiscoveryList":
		var list apidiscovery.APIGroupDiscoveryList
		if err := json.Unmarshal(text, &list); err != nil {
			return nil, err
		}
		list.Items = slices.DeleteFunc(list.Items,
			func(g apidiscovery.APIGroupDiscovery) bool { return !access.IsOwnGroup(g.Name) })
		return json.Marshal(list)
	}
	return nil, errors.New("its kind is not that of a list of groups")
}
