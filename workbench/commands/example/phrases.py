"""What an approval desk reads, as templates: the only place with Chinese wording.

Two marks: `[a|b|c]` is a choice, `{slot}` is filled by `workbench.commands.example.texts`. Slots named after an entity
type are tagged with it; `{bank} {ratio} {months} {number} {product}` are not entities, and some of them (contract
numbers, bank names) look like one on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One class of document or request.

    Attributes:
        sentences: full sentences that belong to this class.
        notes: what a clerk writes in one line; 8 to 20 characters once filled.
        near: classes whose sentences stray into this one, and with which annotators confuse it.
    """

    sentences: tuple[str, ...]
    notes: tuple[str, ...]
    near: tuple[str, str]


SUBJECTS: Mapping[str, Subject] = {
    "application": Subject(
        sentences=(
            "[借款人|申请人|客户]{PERSON}因[经营周转|购置设备|装修房屋|扩大门店]需要，向我行申请[贷款|授信]{AMOUNT}。",
            "申请期限{months}个月，用途为[流动资金周转|采购原材料|个人消费]，[拟采用|采用]等额本息方式还款。",
            "{PERSON}，身份证号{ID_NUMBER}，现住{ADDRESS}，申请办理{product}。",
            "客户经理于{DATE}完成面谈，建议[准入|按流程上报|给予授信]，拟批额度{AMOUNT}。",
            "申请企业{COMPANY}主营[建材销售|餐饮服务|五金加工|软件开发]，本次申请额度{AMOUNT}。",
            "经初步调查，申请人资料齐全，还款来源为[经营收入|工资收入]，风险可控。",
            "本次为[首次申请|续贷申请|增额申请]，希望尽快安排[面签|尽调|上会]。",
        ),
        notes=("{PERSON}申请{AMOUNT}周转", "新增{product}申请一笔", "申请授信{AMOUNT}待尽调", "首次申请，资料已收"),
        near=("progress_question", "income_proof"),
    ),
    "income_proof": Subject(
        sentences=(
            "兹证明{PERSON}系我单位[正式员工|在职职工|合同制员工]，月均[税后|税前]收入{AMOUNT}。",
            "该员工自{DATE}入职，现任[销售经理|会计|工程师|店长]一职，收入稳定。",
            "本单位对上述[收入|在职]情况的真实性负责，特此证明。",
            "工资由{COMPANY}[按月|每月十号]发放，另有年终奖金约{AMOUNT}。",
            "单位盖章：{COMPANY}，联系电话{PHONE}。",
            "[薪资|工资]构成包括基本工资、绩效和补贴，全年合计{AMOUNT}。",
        ),
        notes=("{PERSON}月收入{AMOUNT}", "在职证明，单位已盖章", "收入证明缺公章", "税后月薪{AMOUNT}"),
        near=("bank_statement", "application"),
    ),
    "contract": Subject(
        sentences=(
            "甲方（出借人）与乙方（借款人）{PERSON}[经协商一致|本着自愿原则]，订立本借款合同。",
            "借款金额为{AMOUNT}，借款期限自{DATE}起至{DATE}止，年利率{ratio}。",
            "乙方应按期足额[偿还本息|归还借款]，逾期按日加收{ratio}的罚息。",
            "合同编号{number}，一式[两份|三份|四份]，双方各执一份，自签字盖章之日起生效。",
            "因本合同发生争议，双方应协商解决；协商不成的，向甲方所在地人民法院起诉。",
            "借款资金划入乙方账户{BANK_ACCOUNT}，专款专用，不得挪作他用。",
            "任何一方违反本合同约定，应承担违约责任并赔偿对方损失。",
        ),
        notes=("合同{number}已签", "借款合同缺第三页", "合同利率{ratio}待核", "乙方签字日期{DATE}"),
        near=("guarantee", "collateral"),
    ),
    "business_licence": Subject(
        sentences=(
            "名称：{COMPANY}，类型：[有限责任公司|个体工商户|股份有限公司]，法定代表人：{PERSON}。",
            "注册资本{AMOUNT}，成立日期{DATE}，营业期限[长期|二十年|至无固定期限]。",
            "住所：{ADDRESS}。经营范围：[日用百货批发零售|建筑工程施工|餐饮管理|信息技术服务]。",
            "统一社会信用代码{number}，登记机关为[市场监督管理局|行政审批局]。",
            "依法须经批准的项目，经相关部门批准后方可开展经营活动。",
            "[执照|营业执照]应于每年[一月|三月|六月]前通过公示系统报送年度报告。",
        ),
        notes=("{COMPANY}执照副本", "执照法人为{PERSON}", "注册资本{AMOUNT}", "营业执照已过年检"),
        near=("application", "contract"),
    ),
    "bank_statement": Subject(
        sentences=(
            "户名{PERSON}，账号{BANK_ACCOUNT}，开户行{bank}，[交易明细|流水]如下。",
            "{DATE} [转账收入|工资入账|货款入账]{AMOUNT}，[余额|账户余额]{AMOUNT}。",
            "{DATE} [支付宝消费|微信支付|POS消费|转账支出]{AMOUNT}，对方户名{COMPANY}。",
            "近[六|三|十二]个月累计[入账|收入]{AMOUNT}，月均余额{AMOUNT}。",
            "流水打印日期{DATE}，流水号{number}，加盖[业务章|电子回单章]有效。",
            "账户存在[整进整出|快进快出|大额现金存取]现象，需进一步核实。",
        ),
        notes=("{DATE}入账{AMOUNT}", "{PERSON}半年流水", "流水余额{AMOUNT}", "账号{BANK_ACCOUNT}"),
        near=("income_proof", "credit_report"),
    ),
    "collateral": Subject(
        sentences=(
            "抵押物为位于{ADDRESS}的[住宅|商铺|厂房|写字楼]一套，建筑面积{number}平方米。",
            "经{COMPANY}评估，抵押物评估价值{AMOUNT}，抵押率{ratio}。",
            "不动产权证号{number}，权利人{PERSON}，[无查封|已抵押一次|产权清晰]。",
            "抵押登记应于{DATE}前在不动产登记中心[办妥|办理完毕]。",
            "[车辆|设备]抵押需办理登记并购买保险，第一受益人为我行。",
            "借款人未能清偿时，抵押权人有权[拍卖|变卖]抵押物并优先受偿。",
        ),
        notes=("{ADDRESS}房产抵押", "评估价{AMOUNT}", "抵押率{ratio}偏高", "房产证原件已入库"),
        near=("contract", "guarantee"),
    ),
    "credit_report": Subject(
        sentences=(
            "被查询者姓名{PERSON}，证件号码{ID_NUMBER}，报告时间{DATE}。",
            "[贷记卡|信用卡]{months}张，授信总额{AMOUNT}，已用额度{AMOUNT}。",
            "近[两年|五年]内有[一次|两次|三次|六次]逾期记录，最长逾期[三十天|六十天|九十天以上]。",
            "近[三个月|半年]机构查询次数{months}次，[查询较频繁|在正常范围内]。",
            "未结清贷款[两笔|三笔|五笔]，余额合计{AMOUNT}，当前状态[正常|关注|逾期]。",
            "对外担保余额{AMOUNT}，被担保人为{COMPANY}。",
        ),
        notes=("{PERSON}征信两次逾期", "征信查询{months}次", "信用卡已用{AMOUNT}", "当前无逾期"),
        near=("bank_statement", "repayment_question"),
    ),
    "guarantee": Subject(
        sentences=(
            "保证人{PERSON}自愿为[借款人|债务人]在贵行的债务提供[连带责任保证|不可撤销担保]。",
            "担保范围包括本金{AMOUNT}及利息、罚息、违约金和实现债权的费用。",
            "保证期间为主债务履行期届满之日起[两年|三年]。",
            "担保人{COMPANY}已召开股东会，[一致同意|表决通过]提供本次担保。",
            "若债务人未按期还款，担保人承诺在接到通知后[七日|十日|三个工作日]内代为清偿。",
            "担保人身份证号{ID_NUMBER}，联系电话{PHONE}，住址{ADDRESS}。",
        ),
        notes=("{PERSON}愿意担保", "担保人电话{PHONE}", "{COMPANY}担保函", "保证期间两年"),
        near=("contract", "collateral"),
    ),
    "repayment_question": Subject(
        sentences=(
            "请问我这个月[还款日|扣款日]是几号，[应还|要还]多少钱？",
            "我的还款卡{BANK_ACCOUNT}换了，[怎么改|如何变更]扣款账户？",
            "{DATE}已经存了{AMOUNT}进去，为什么还[显示欠款|没扣款|提示逾期]？",
            "[每月|月供]{AMOUNT}能不能[延后几天|改到发工资以后]再扣？",
            "麻烦查一下{PERSON}名下贷款还剩[几期|多少本金]没还。",
            "逾期[一天|两天]会不会上征信，[罚息|违约金]怎么算？",
        ),
        notes=("这个月要还多少", "还款日能改吗", "{DATE}扣款没成功", "换卡怎么还款"),
        near=("early_repayment", "complaint"),
    ),
    "early_repayment": Subject(
        sentences=(
            "我想[提前还清|一次性结清]贷款，剩余本金大概{AMOUNT}，要怎么[申请|办理]？",
            "提前还款[有没有违约金|收不收手续费]，是按{ratio}还是按一个月利息算？",
            "打算{DATE}先还{AMOUNT}，剩下的[缩短期限|减少月供]哪个划算？",
            "提前结清后[结清证明|抵押注销]多久能[开出来|办好]？",
            "手头有一笔闲钱{AMOUNT}，[部分提前还本|提前还一部分]需要预约吗？",
        ),
        notes=("想提前还{AMOUNT}", "提前结清收违约金吗", "预约{DATE}结清", "结清证明怎么开"),
        near=("repayment_question", "contract"),
    ),
    "progress_question": Subject(
        sentences=(
            "我{DATE}提交的[贷款|{product}]申请，现在[审批到哪一步|什么进度]了？",
            "资料早就交齐了，请问还要[等多久|几个工作日]才能[放款|批下来]？",
            "客户经理说[已经上会|已经终审]，但是手机上还显示[审核中|待补件]。",
            "申请编号{number}，手机尾号可查，[帮忙看下|麻烦查询]审批结果。",
            "是不是还缺[收入证明|银行流水|征信授权]，需要补[什么材料|哪些资料]？",
        ),
        notes=("批下来了吗", "{PERSON}那笔到哪了", "什么时候放款", "申请{number}查进度"),
        near=("application", "complaint"),
    ),
    "complaint": Subject(
        sentences=(
            "我要投诉，[客户经理|客服|催收人员]态度[恶劣|极差]，[推诿扯皮|一直不解决问题]！",
            "说好的利率{ratio}，实际却按{ratio}收，[你们这是欺骗客户|我完全不能接受]。",
            "催收一天打{months}个电话给我[家人|同事]，[严重影响生活|侵犯隐私]，请给个说法。",
            "{DATE}就反映过，[至今没人处理|没有任何回复]，再不解决我就[向监管举报|走法律途径]。",
            "莫名其妙被扣了{AMOUNT}，要求[立即退还|书面道歉并退款]。",
            "审批拖了[一个月|两个多月]还没结果，[耽误我买房|影响我进货]，谁来负责？",
        ),
        notes=("投诉客服没人管", "多扣{AMOUNT}要退", "催收骚扰家人", "拖了一个月没结果"),
        near=("repayment_question", "progress_question"),
    ),
}
"""Class name → its wording. The order is the order of the labels."""

SHARED = (
    "联系人{PERSON}，电话{PHONE}，[请尽快回复|方便时联系]。",
    "[以上情况属实|上述内容无误]，日期{DATE}。",
    "地址：{ADDRESS}，[邮编见附件|如有变更另行通知]。",
    "[附件|随附材料]共{months}页，请[查收|核对]。",
    "涉及金额{AMOUNT}，[请核实|详见附表]。",
    "经办人{PERSON}，{bank}[个贷中心|小微团队|营业部]。",
    "单位：{COMPANY}，[经办日期|落款日期]{DATE}。",
    "身份证号码{ID_NUMBER}，[已核验|复印件附后]。",
    "贷款{product}，期限{months}个月，利率{ratio}。",
    "[您好|你好]，[谢谢|麻烦了]。",
    "收款账号{BANK_ACCOUNT}，开户行{bank}。",
    "[备注|说明]：{DATE}补充，[其余同前|以最新为准]。",
)
"""Sentences that say nothing about the class."""

WEAK_NOTES = (
    "{PERSON}，{AMOUNT}",
    "{PERSON}的材料{DATE}补",
    "{COMPANY}请核实",
    "贷款{AMOUNT}，{months}个月",
    "{DATE}，利率{ratio}",
    "请联系{PHONE}",
)
"""Notes whose class only the person who wrote them knows."""

REMARKS = ("，[请|速]回复{PHONE}", "，{PERSON}经办", "，{DATE}", "，[急|加急]", "，[待核|请核]实", "，{bank}")
"""What is added to a note; it says nothing about the class."""

SURNAMES = "王李张刘陈杨赵黄周吴徐孙胡朱高林何郭马罗梁宋郑谢韩唐冯于董萧"
COMPOUND_SURNAMES = ("欧阳", "上官", "司马", "诸葛")
GIVEN = "伟芳娜秀英敏静丽强磊军洋勇艳杰娟涛明超兰霞平刚桂华建国文志玉红春梅海燕晓云龙佳宇轩浩然子涵雨欣"
TITLES = ("总", "经理", "先生", "女士", "老板")
PLACES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("广东省深圳市", ("南山区", "福田区", "宝安区")),
    ("浙江省杭州市", ("西湖区", "余杭区", "滨江区")),
    ("江苏省苏州市", ("吴中区", "姑苏区", "昆山市")),
    ("四川省成都市", ("武侯区", "高新区", "锦江区")),
    ("湖北省武汉市", ("洪山区", "江汉区", "武昌区")),
    ("山东省青岛市", ("市南区", "崂山区", "黄岛区")),
    ("北京市", ("朝阳区", "海淀区", "丰台区")),
    ("上海市", ("浦东新区", "徐汇区", "闵行区")),
)
"""Province or municipality with city, and districts inside it."""
ROADS = ("科技路", "人民路", "中山大道", "建设街", "解放路", "文一西路", "长江路", "幸福里", "滨海大道", "学院路")
ESTATES = ("阳光花园", "锦绣家园", "万科城", "翠苑小区", "金色港湾", "华府名邸")
FIRM_NAMES = ("华信", "恒通", "鑫源", "宏达", "盛世", "众合", "天成", "瑞丰", "金桥", "安泰", "卓越", "永兴")
FIRM_TRADES = ("科技", "贸易", "建材", "餐饮管理", "物流", "电子", "装饰工程", "服饰", "机械设备", "投资咨询")
FIRM_FORMS = ("有限公司", "有限责任公司", "股份有限公司", "经营部", "商行")
BANKS = ("工商银行", "建设银行", "招商银行", "农业银行", "中国银行", "兴业银行")
BRANCHES = ("深圳分行", "城东支行", "高新支行", "营业部", "")
PRODUCTS = ("经营贷", "消费贷", "装修贷", "房抵贷", "税易贷", "个人信用贷")

CONFUSABLE: Mapping[str, str] = {
    "未": "末", "末": "未", "己": "已", "已": "己", "日": "曰", "人": "入", "入": "人", "贷": "货", "货": "贷",
    "元": "无", "万": "方", "千": "干", "土": "士", "大": "太", "申": "甲", "甲": "申", "由": "田", "期": "斯",
    "0": "O", "1": "l", "5": "S", "8": "B", "2": "Z", "6": "b", "账": "帐", "住": "往", "王": "玉", "杨": "扬",
    "刘": "列", "陈": "阵", "限": "眼", "公": "么", "抵": "低", "保": "褓", "证": "正", "款": "歀", "额": "颔",
}  # fmt: skip
"""What a scanner reads instead of a character."""
