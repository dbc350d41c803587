//! Names of a fresh FreeBSD that differ from OpenBSD's.

/// Name and number of a user.
const USERS: &[(&str, u32)] = &[
    ("root", 0),
    ("toor", 0),
    ("daemon", 1),
    ("operator", 2),
    ("bin", 3),
    ("tty", 4),
    ("kmem", 5),
    ("games", 7),
    ("news", 8),
    ("man", 9),
    ("sshd", 22),
    ("smmsp", 25),
    ("mailnull", 26),
    ("bind", 53),
    ("unbound", 59),
    ("proxy", 62),
    ("_pflogd", 64),
    ("_dhcp", 65),
    ("uucp", 66),
    ("pop", 68),
    ("auditdistd", 78),
    ("www", 80),
    ("ntpd", 123),
    ("_ypldap", 160),
    ("hast", 845),
    ("nobody", 65534),
];

/// Name and number of a group.
const GROUPS: &[(&str, u32)] = &[
    ("wheel", 0),
    ("daemon", 1),
    ("kmem", 2),
    ("sys", 3),
    ("tty", 4),
    ("operator", 5),
    ("mail", 6),
    ("bin", 7),
    ("news", 8),
    ("man", 9),
    ("games", 13),
    ("ftp", 14),
    ("staff", 20),
    ("sshd", 22),
    ("smmsp", 25),
    ("mailnull", 26),
    ("guest", 31),
    ("video", 44),
    ("realtime", 47),
    ("bind", 53),
    ("unbound", 59),
    ("proxy", 62),
    ("authpf", 63),
    ("_pflogd", 64),
    ("_dhcp", 65),
    ("uucp", 66),
    ("dialer", 68),
    ("network", 69),
    ("audit", 77),
    ("www", 80),
    ("ntpd", 123),
    ("_ypldap", 160),
    ("hast", 845),
    ("nogroup", 65533),
    ("nobody", 65534),
];

/// Names of `ICMPv6` codes beside those of OpenBSD, which they go before: name, type, code.
pub(super) const ICMP6_CODES: &[(&str, u8, u8)] = &[("notnbr-unr", 1, 2)];

/// Number of a user.
pub fn user(name: &str) -> Option<u32> {
    USERS
        .iter()
        .find(|&&(other, _)| other == name)
        .map(|&(_, id)| id)
}

/// Number of a group of users.
pub fn group(name: &str) -> Option<u32> {
    GROUPS
        .iter()
        .find(|&&(other, _)| other == name)
        .map(|&(_, id)| id)
}

/// Services of TCP and UDP alike, each with its port: those up to 212 and the better known above, of
/// `/etc/services` of FreeBSD 14. A port that is not there is printed as its number.
const BOTH: &str = "\
    tcpmux 1 compressnet 2 compressnet 3 rje 5 echo 7 discard 9 systat 11 daytime 13 qotd 17 msp 18 chargen 19
    ftp-data 20 ftp 21 ssh 22 telnet 23 smtp 25 nsw-fe 27 msg-icp 29 msg-auth 31 dsp 33 time 37 rap 38 rlp 39
    graphics 41 nameserver 42 nicname 43 mpm-flags 44 mpm 45 mpm-snd 46 ni-ftp 47 auditd 48 tacacs 49
    re-mail-ck 50 la-maint 51 xns-time 52 domain 53 xns-ch 54 isi-gl 55 xns-auth 56 xns-mail 58 acas 62
    whoispp 63 covia 64 tacacs-ds 65 sql-net 66 bootps 67 bootpc 68 tftp 69 gopher 70 netrjs-1 71 netrjs-2 72
    netrjs-3 73 netrjs-4 74 deos 76 vettcp 78 finger 79 http 80 xfer 82 mit-ml-dev 83 ctf 84 mit-ml-dev 85
    mfcobol 86 kerberos-sec 88 su-mit-tg 89 dnsix 90 mit-dov 91 npp 92 dcp 93 objcall 94 supdup 95 dixie 96
    swift-rvf 97 tacnews 98 metagram 99 hostname 101 iso-tsap 102 gppitnp 103 acr-nema 104 csnet-ns 105
    rtelnet 107 snagas 108 pop2 109 pop3 110 sunrpc 111 mcidas 112 auth 113 sftp 115 ansanotify 116
    uucp-path 117 sqlserv 118 nntp 119 cfdptkt 120 erpc 121 smakynet 122 ntp 123 ansatrader 124 locus-map 125
    nxedit 126 locus-con 127 gss-xlicen 128 pwdgen 129 cisco-fna 130 cisco-tna 131 cisco-sys 132 statsrv 133
    ingres-net 134 epmap 135 profile 136 netbios-ns 137 netbios-dgm 138 netbios-ssn 139 emfis-data 140
    emfis-cntl 141 bl-idm 142 imap 143 uma 144 uaac 145 iso-tp0 146 iso-ip 147 jargon 148 aed-512 149
    sql-net 150 hems 151 bftp 152 sgmp 153 netsc-prod 154 netsc-dev 155 sqlsrv 156 knet-cmp 157 pcmail-srv 158
    nss-routing 159 sgmp-traps 160 snmp 161 snmptrap 162 cmip-man 163 xns-courier 165 s-net 166 namp 167
    rsvd 168 send 169 print-srv 170 multiplex 171 cl/1 172 xyplex-mux 173 mailq 174 vmnet 175 genrad-mux 176
    xdmcp 177 nextstep 178 bgp 179 ris 180 unify 181 audit 182 ocbinder 183 ocserver 184 remote-kis 185
    kis 186 aci 187 mumps 188 qft 189 gacp 190 prospero 191 osu-nms 192 srmp 193 irc 194 dn6-nlm-aud 195
    dn6-smm-red 196 dls 197 dls-mon 198 smux 199 src 200 at-rtmp 201 at-nbp 202 at-3 203 at-echo 204 at-5 205
    at-zis 206 at-7 207 at-8 208 qmtp 209 z39-50 210 914c-g 211 anet 212 ipx 213 pip 321 ldap 389 svrloc 427
    https 443 microsoft-ds 445 smtps 465 isakmp 500 citadel 504 printer 515 talk 517 ntalk 518 utime 519
    ripng 521 ncp 524 timed 525 courier 530 netnews 532 netwall 533 uucp 540 klogin 543 kshell 544
    dhcpv6-client 546 dhcpv6-server 547 afpovertcp 548 rtsp 554 remotefs 556 rmonitor 560 monitor 561
    nntps 563 whoami 565 submission 587 http-alt 591 http-rpc-epmap 593 syslog-conn 601 xmlrpc-beep 602
    asf-rmcp 623 qmqp 628 ipp 631 ldaps 636 msdp 639 ldp 646 dhcp-failover 647 aodv 654 tinc 655
    asf-secure-rmcp 664 acap 674 olsr 698 epp 700 agentx 705 silc 706 kerberos-adm 749 netconf-ssh 830
    dhcp-failover2 847 gdoi 848 domain-s 853 iscsi 860 rsync 873 ftps-data 989 ftps 990 nas 991 telnets 992
    imaps 993 ircs 994 pop3s 995 exp1 1021 exp2 1022 blackjack 1025 socks 1080 openvpn 1194 rsf-1 1195
    icap 1344 ms-sql-s 1433 ms-sql-m 1434 ingreslock 1524 l2f 1701 ssdp 1900 nfsd 2049 gnunet 2086
    cvspserver 2401 dict 2628 cifs 3020 iscsi-target 3260 mysql 3306 ms-wbt-server 3389 nut 3493 daap 3689
    svn 3690 bfd-control 3784 bfd-echo 3785 lockd 4045 sieve 4190 rwhois 4321 epmd 4369 krb524 4444
    ipsec-nat-t 4500 hylafax 4559 ipfix 4739 ipfixs 4740 sip 5060 sip-tls 5061 xmpp-client 5222
    xmpp-server 5269 presence 5298 cfengine 5308 mdns 5353 mdnsresponder 5354 postgresql 5432 amqps 5671
    amqp 5672 vnc-server 5900 couchdb 5984 x11 6000 x11-ssh 6010 sane-port 6566 ircu 6665 afs3-fileserver 7000
    afs3-callback 7001 afs3-prserver 7002 afs3-vlserver 7003 afs3-kaserver 7004 afs3-volser 7005
    afs3-errors 7006 afs3-bos 7007 afs3-update 7008 afs3-rmtsys 7009 font-service 7100 http-alt 8080
    privoxy 8118 bacula-dir 9101 bacula-fd 9102 bacula-sd 9103 git 9418 zabbix-agent 10050
    zabbix-trapper 10051 amanda 10080 nfsrdma 20049";

/// Services of TCP only.
const TCP: &str = "\
    newacct 100 pop3pw 106 cmip-agent 164 exec 512 login 513 shell 514 efs 520 krb_prop 754 supfilesrv 871
    rndc 953 pptp 1723 supfiledbg 1127 diameter 3868 personal-agent 5555 canna 5680 cvsup 5999 ircd 6667
    ircs-u 6697 ftp-proxy 8021 puppet 8140 ub-dns-control 8953 jetdirect 9100 prom-sysctl 9124 amandaidx 10082
    amidxtape 10083";

/// Services of UDP only.
const UDP: &str = "\
    3com-tsmux 106 smip-agent 164 biff 512 who 513 syslog 514 router 520 tell 754 radius 1812 radacct 1813
    vxlan 4789 rplay 5555 auriga-router 5680 intu-ec-client 8021 pdl-datastream 9100";

/// Further names of services.
const ALIASES: &str = "\
    mail 25 www 80 www-http 80 kerberos 88 ident 113 rpcbind 111 whois 43 name 42 usenet 119 imap2 143
    imap4 143 dhcps 67 dhcpc 68 cmd 514 route 520 routed 520 spooler 515 nfs 2049 rdp 3389 spop3 995
    comsat 512 whod 513 kdc 750 snmp-trap 162 l2tp 1701";

fn entries(list: &'static str) -> impl Iterator<Item = (&'static str, u16)> {
    let mut words = list.split_ascii_whitespace();
    std::iter::from_fn(move || Some((words.next()?, words.next()?.parse().ok()?)))
}

/// Port of a service.
pub fn service(name: &str) -> Option<u16> {
    [TCP, BOTH, UDP, ALIASES]
        .into_iter()
        .flat_map(entries)
        .find(|&(other, _)| other == name)
        .map(|(_, port)| port)
}

/// Name of a port, as pfctl prints it: of TCP, or else of UDP.
pub fn port_name(port: u16, tcp: bool) -> Option<&'static str> {
    let lists = [if tcp { TCP } else { UDP }, BOTH];
    lists
        .into_iter()
        .flat_map(entries)
        .find(|&(_, other)| other == port)
        .map(|(name, _)| name)
}
