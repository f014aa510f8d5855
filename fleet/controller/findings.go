package controller

import (
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/fleet"
)

// maxMessageBytes is the longest message of a parked object and of a hold.
const maxMessageBytes = 1024

// Reasons of conditions.
const (
	reasonAsExpected       = "AsExpected"
	reasonConnected        = "Connected"
	reasonNotConnected     = "NotConnected"
	reasonNeverConnected   = "NeverConnected"
	reasonRefusedName      = "RefusedName"
	reasonRefusedMode      = "RefusedMode"
	reasonRefusedVersion   = "RefusedVersion"
	reasonRefusedProtocol  = "RefusedProtocol"
	reasonRefusedSPIFFEID  = "RefusedSPIFFEID"
	reasonSuspended        = "Suspended"
	reasonDeleting         = "Deleting"
	reasonSPIFFEIDConflict = "SPIFFEIDConflict"
	reasonMappingConflict  = "NamespaceConflict"
	reasonSecretConflict   = "ClusterSecretConflict"
	reasonSecretNotReady   = "ClusterSecretNotReady"
	reasonCacheFormat      = "OtherFormat"
)

// findings are what a pass over an Agent found out.
type findings struct {
	conflicts  []fleet.Conflict
	namespaces []fleet.NamespaceConflict
	projects   namedProjects
	mapping    Mapping
	children   Children
	secret     secretPlan
	session    Session
	// waits is what the deletion of the Agent waits for, to complete a sentence.
	waits string
}

// cut returns the beginning of s, at most maxMessageBytes, whole runes only.
func cut(s string) string {
	if len(s) <= maxMessageBytes {
		return s
	}
	n := maxMessageBytes
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// seconds returns t as the API server stores it.
func seconds(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }
