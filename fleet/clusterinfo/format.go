package clusterinfo

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// Version is the version of what Argo CD keeps in Redis (its common.CacheVersion),
// as of Argo CD 3.5.
const Version = "1.8.3"

// LocalServer is the server under which an Argo CD knows the Kubernetes cluster
// it runs in.
const LocalServer = "https://kubernetes.default.svc"

const (
	// MaxBytes is the longest value that is read.
	MaxBytes = 1 << 20
	// maxPlainBytes is the longest value after it was decompressed: several times
	// what a Kubernetes cluster with a thousand custom resources has.
	maxPlainBytes = 8 << 20
	// maxTimeBytes is longer than any time; what is longer is not quoted either.
	maxTimeBytes = 64
	// maxCount is the largest number that is passed on; what claims more is noise.
	maxCount = 1 << 40
)

// ErrInvalid is wrapped by errors about values that are not a cluster's info.
var ErrInvalid = errors.New("not a cluster info")

// Format says how an Argo CD keeps values in its Redis. The zero value is how the
// Argo CD of [Version] does by default.
type Format struct {
	// Version is the last part of every key. Empty means the constant Version.
	Version string
	// Plain says that values are not compressed: Argo CD's --redis-compress=none.
	Plain bool
}

// keyPrefix begins the keys of cluster infos.
const keyPrefix = "cluster|info|"

// Key returns the key of the cluster that Argo CD knows by its server.
func (f Format) Key(server string) string {
	v := f.Version
	if v == "" {
		v = Version
	}
	key := keyPrefix + server + "|" + v
	if !f.Plain {
		key += ".gz"
	}
	return key
}

// Session is what a hub knows of one registered agent.
type Session struct {
	// Connected says whether the agent has a live sync stream.
	Connected bool
	// Since is when Connected took its value; zero when that is not known.
	Since time.Time
	// LastSeen is when an agent that is not connected was last heard of; zero for
	// never.
	LastSeen time.Time
	// Unseen says that this process has not had the agent connected yet, so that
	// it may be on its way here.
	Unseen bool
	// Kubernetes is the version of the spoke's API server, as that tells it. Empty
	// when it is not known.
	Kubernetes string
	// Spoke is what the agent last told of its Argo CD.
	Spoke stream.SpokeInfo
	// Held is how many deletions wait until a person accepts them, and HeldReason why.
	Held       int64
	HeldReason string
	// Parked is how many objects one side's API server refuses.
	Parked int64
	// Suspended says that the Agent is suspended, and Refused why a connection of its agent
	// was refused, with a cure; empty when none was as far as the hub knows.
	Suspended bool
	Refused   string
}

// Encode returns the value that shows an agent as a cluster. Equal sessions give
// equal bytes.
func (f Format) Encode(agent identity.AgentName, s Session) []byte {
	return f.encode(viewOf(agent, s))
}

// view is what Argo CD reads (its v1alpha1.ClusterInfo), and what of it we write.
type view struct {
	ConnectionState   connectionState `json:"connectionState"`
	ServerVersion     string          `json:"serverVersion,omitempty"`
	CacheInfo         cacheInfo       `json:"cacheInfo"`
	ApplicationsCount int64           `json:"applicationsCount"`
}

type connectionState struct {
	Status  string `json:"status"`
	Message string `json:"message"`
	// AttemptedAt is when the status was determined, as RFC 3339.
	AttemptedAt string `json:"attemptedAt,omitempty"`
}

type cacheInfo struct {
	ResourcesCount    int64  `json:"resourcesCount,omitempty"`
	APIsCount         int64  `json:"apisCount,omitempty"`
	LastCacheSyncTime string `json:"lastCacheSyncTime,omitempty"`
}

// Values of connectionState.Status.
const (
	statusSuccessful = "Successful"
	statusFailed     = "Failed"
)

func viewOf(agent identity.AgentName, s Session) view {
	v := view{
		ServerVersion:     serverVersion(s.Kubernetes),
		ApplicationsCount: s.Spoke.Applications,
		CacheInfo: cacheInfo{
			ResourcesCount: s.Spoke.Resources, APIsCount: s.Spoke.APIs, LastCacheSyncTime: moment(s.Spoke.CacheSynced),
		},
	}
	state := &v.ConnectionState
	state.Status = statusFailed
	since, seen := moment(s.Since), moment(s.LastSeen)
	state.AttemptedAt = since
	switch {
	case s.Connected && since != "":
		state.Status, state.Message = statusSuccessful, fmt.Sprintf("agent %s is connected since %s", agent, since)
	case s.Connected:
		state.Status, state.Message = statusSuccessful, fmt.Sprintf("agent %s is connected", agent)
	case since != "":
		state.Message = fmt.Sprintf("agent %s is not connected since %s", agent, since)
	case seen != "":
		state.Message = fmt.Sprintf("agent %s is not connected, it was last seen at %s", agent, seen)
		state.AttemptedAt = seen
	default:
		state.Message = fmt.Sprintf("agent %s has never connected", agent)
	}
	state.Message += waiting(agent, s)
	return v
}

// waiting says what of an agent's waits for a person, and what shows it.
func waiting(agent identity.AgentName, s Session) string {
	text := ""
	switch {
	case s.Suspended:
		text = fmt.Sprintf("; suspended: agentctl agent resume %s", agent)
	case s.Refused != "" && !s.Connected:
		text = "; " + s.Refused
	}
	if s.Held > 0 {
		deletions := "deletions"
		if s.Held == 1 {
			deletions = "deletion"
		}
		text += fmt.Sprintf("; %d %s held (%s): agentctl agent accept-deletions %s", s.Held, deletions, s.HeldReason, agent)
	}
	if s.Parked > 0 {
		text += fmt.Sprintf("; %d parked: agentctl agent get %s", s.Parked, agent)
	}
	return text
}

// serverVersion is a Kubernetes version in the form Argo CD and Helm want:
// without what a vendor appends. One that is none stays as it is.
func serverVersion(text string) string {
	if v, err := version.ParseGeneric(text); err == nil {
		return "v" + v.String()
	}
	return text
}

// moment is t as Argo CD reads it; empty for the zero time, and for one that
// RFC 3339 cannot say.
func moment(t time.Time) string {
	if t = t.UTC(); t.IsZero() || t.Year() < 0 || t.Year() > 9999 {
		return ""
	}
	return t.Format(time.RFC3339)
}

func (f Format) encode(v view) []byte {
	plain, err := json.Marshal(v)
	if err != nil {
		panic("encode cluster info: " + err.Error()) // strings and numbers
	}
	if f.Plain {
		return plain
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err = w.Write(plain)
	if err = errors.Join(err, w.Close()); err != nil {
		panic("compress cluster info: " + err.Error()) // a buffer takes all
	}
	return out.Bytes()
}

// Decode reads what an Argo CD knows of a cluster. Values are bounded and of one
// form whatever the bytes are; what is not known is zero. Errors wrap ErrInvalid.
func (f Format) Decode(value []byte) (stream.SpokeInfo, error) {
	if len(value) > MaxBytes {
		return stream.SpokeInfo{}, fmt.Errorf("%w: it is longer than %d bytes", ErrInvalid, MaxBytes)
	}
	plain := value
	if !f.Plain {
		var err error
		if plain, err = decompress(value); err != nil {
			return stream.SpokeInfo{}, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	var v view
	if err := json.Unmarshal(plain, &v); err != nil {
		return stream.SpokeInfo{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	info := stream.SpokeInfo{
		Applications: v.ApplicationsCount, APIs: v.CacheInfo.APIsCount, Resources: v.CacheInfo.ResourcesCount,
	}
	for _, n := range []int64{info.Applications, info.APIs, info.Resources} {
		if n < 0 || n > maxCount {
			return stream.SpokeInfo{}, fmt.Errorf("%w: a count of %d", ErrInvalid, n)
		}
	}
	if text := v.CacheInfo.LastCacheSyncTime; len(text) > maxTimeBytes {
		return stream.SpokeInfo{}, fmt.Errorf("%w: a time of %d bytes", ErrInvalid, len(text))
	} else if text != "" {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return stream.SpokeInfo{}, fmt.Errorf("%w: time of the last cache sync: %w", ErrInvalid, err)
		}
		if at.Unix() > 0 && moment(at) != "" { // no cache is older than Unix
			info.CacheSynced = time.Unix(at.Unix(), 0).UTC()
		}
	}
	return info, nil
}

func decompress(value []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(value))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(r, maxPlainBytes+1))
	if err != nil {
		return nil, err
	}
	if len(plain) > maxPlainBytes {
		return nil, fmt.Errorf("it is longer than %d bytes when decompressed", maxPlainBytes)
	}
	return plain, nil
}
